"""Who a party is: certificates, keys, signatures, and the TLS settings that check them."""
