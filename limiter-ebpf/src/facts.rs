//! Writes the facts of a frame into the scratch of the CPU.

use limiter_decision::packet;

use crate::call::call;
use crate::context::Frame;
use crate::maps;

/// Writes the facts of a frame, and its interface, into the scratch; false for a frame without a
/// source.
#[inline(always)]
pub(crate) fn facts<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> bool {
    let Some(facts) = maps::facts() else {
        return false;
    };
    if !packet::read_simple(frame, facts) && !call!(walked_facts(; frame)) {
        return false;
    }
    facts.set_interface(frame.interface());
    true
}

/// Writes the facts of a frame that cannot be read in place into the scratch; false for one without
/// a source. A subprogram, so that the facts of most frames need little stack.
#[inline(always)]
pub(crate) fn walked_facts<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> bool {
    maps::facts().is_some_and(|facts| packet::walk(frame, facts).is_ok())
}

/// Writes the facts of a packet inside a tunnel into the scratch, after [`facts`]. No offset in it
/// depends on the Ethernet header.
#[inline(always)]
pub(crate) fn inner<const LAYER_3: bool>(frame: &Frame<LAYER_3>) {
    if let Some(facts) = maps::facts() {
        packet::inner(frame, facts);
    }
}
