"""Classification of digits, trained on clients that keep their images."""
