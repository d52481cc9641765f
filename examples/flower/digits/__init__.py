"""Digits, learnt from clients that keep their images."""
