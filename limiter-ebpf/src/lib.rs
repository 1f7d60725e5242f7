//! The XDP program of limiter. The binaries beside this library are the program; the library only
//! lets cargo see the package as a dependency.

#![no_std]
