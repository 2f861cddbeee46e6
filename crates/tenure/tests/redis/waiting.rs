//! The rules of waiting and hand-over, each with the interleaving that it prevents.
