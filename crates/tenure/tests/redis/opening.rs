//! From a URL to a server: TLS, users, databases, sockets, and what is wrong with them.
