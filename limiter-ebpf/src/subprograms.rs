//! The BPF functions: one for each subprogram of `limiter_decision::subprograms`, and for each
//! subprogram of this program. All are made here, in the same way; the rows name the functions that
//! they call.

/// The subprograms of this program, in the form of `limiter_decision::subprograms`. Additional
/// kinds of registers: `twin` is a frame, and makes two functions, the second of which (`_l3`)
/// assumes that the frame begins with its IP header.
macro_rules! own_subprograms {
    ($made:ident) => {
        $made! {
            before_tables = crate::path::before_tables, () (twin word word);
            begin_packet = crate::path::begin_packet, () (twin word word word);
            facts = crate::facts::facts, () (twin);
            walked_facts = crate::facts::walked_facts, () (twin);
            extension_at = crate::context::frame::extension_at, () (frame half half);
            inner = crate::facts::inner, () (frame);
            redirect = crate::program::redirect, () (half);
            log = crate::path::log, () (word word);
            event = crate::events::event, () (twin word word word half);
            send_event = crate::events::send_event, (scratch) (word word word);
            capture = crate::capture::capture, () (twin word word word word);
            keep_bytes = crate::capture::keep_bytes, () (twin);
            capture_level = crate::capture::capture_level, () (twin word half);
            charge_capture = crate::capture::charge_capture, () (word word);
            fill_capture = crate::capture::fill_capture, () (twin);
            miss_capture = crate::capture::miss_capture, () (word word);
            send_capture = crate::capture::send_capture, () (word word word word half);
            is_established = crate::context::socket::is_established, (facts) (frame);
            bond_of = crate::maps::members::bond_of, () (half);
            copy_key = crate::maps::kernel::copy_key, () (entry key);
            is_of = crate::maps::kernel::is_of, () (entry key);
            load_word = crate::maps::words::load_word, () (keyed half);
            exchange_word = crate::maps::words::exchange_word, () (keyed half word word);
        }
    };
}

use crate::define_subprograms::define_subprograms;

limiter_decision::subprograms!(define_subprograms);
own_subprograms!(define_subprograms);

/// The subprograms of this program as BPF functions.
#[cfg(target_arch = "bpf")]
pub(crate) mod call {
    use limiter_decision::declare_subprograms;

    own_subprograms!(declare_subprograms);

    pub(crate) use limiter_decision::subprograms::call::*;
}
