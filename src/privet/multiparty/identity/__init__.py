"""How parties prove who they are: certificates, keys, signatures, and TLS settings."""
