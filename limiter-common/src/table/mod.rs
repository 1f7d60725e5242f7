//! Tables: limits by any facts of a packet, several to a rule, of any algorithm.
