//! Subprograms of the XDP program (global functions of BPF): parts of the decision that the
//! kernel's verifier proves by themselves, for any arguments, and then calls without walking them
//! again. Otherwise their ways would multiply.
//!
//! A subprogram is an ordinary function. A caller across that boundary writes
//!
//! ```text
//! call!(check_limits(maps, scratch; bucket, slot, scale))
//! ```
//!
//! On the host that is the call `check_limits(maps, scratch, bucket, slot, scale)`. In the XDP
//! program it is a call of the BPF function `check_limits` with the arguments behind the semicolon,
//! in registers. `limiter-ebpf` makes that function from the row of the list below, with the
//! arguments before the semicolon: the maps of the kernel, and the memory of the packet under way.
//! The BPF function calls `check_limits`.
//!
//! A row says where the function is, the arguments before the semicolon, and the kinds of registers
//! that hold the rest. A BPF function has five.
//!
//! | kind | registers | of |
//! |---|--:|---|
//! | `word` | 1 | a [`crate::register::Register`] |
//! | `half` | 1 | the same, of 32 bits: so the verifier knows how large an index is |
//! | `keyed`, `option` | 1 | the bucket of a key, or a budget; or none |
//! | `entry` | 1 | the value of a key's bucket in its map |
//! | `key` | 1 | a key in memory |
//! | `source` | 2 | a [`limiter_common::source::Source`] |
//! | `bucket_key` | 2 | a [`limiter_common::bucket_key::BucketKey`] |
//! | `packet` | 4 | an [`crate::engine::SourcePacket`] |
//! | `bucket_packet` | 5 | the bucket of the source of an [`crate::engine::SourcePacket`], and that |
//! | `bucket_and_key` | 3 | a bucket of the tables of sources, and its bucket key |
//! | `bucket` | 2 | the bucket of a source, without a lock |
//! | `frame` | 1 | the frame of the packet |
//! | `twin` | 1 | the same, for two functions: `_l3` is for frames without Ethernet headers |
//! | `line` | 1 | a line of sources |
//! | `units` | 3 | a [`crate::meter::Units`] |
//!
//! A bucket of the tables of sources is in a hash map or in a line: its function has both, apart
//! ([`crate::stored`]).

use crate::packet::Bytes;

/// Calls a macro with every subprogram.
#[macro_export]
macro_rules! subprograms {
    ($made:ident) => {
        $made! {
            // Before the source table.
            listed = limiter_decision::engine::listed, (maps) (source word);
            is_banned = limiter_decision::engine::is_banned, (maps) (source word);
            is_trial_over = limiter_decision::engine::is_trial_over, (maps) (word);
            // The source table.
            plain_source = limiter_decision::engine::plain_source, (maps) (packet);
            first = limiter_decision::engine::first::first, (maps) (packet);
            resolve = limiter_decision::engine::first::resolve, (maps) (bucket_key half);
            without_bucket = limiter_decision::engine::first::without_bucket, (maps) (packet);
            charge_again = limiter_decision::engine::charge_again, (maps) (bucket_packet);
            charge_contended = limiter_decision::engine::charge_contended, (maps) (bucket_packet);
            re_resolve = limiter_decision::engine::changed::re_resolve,
                (maps) (bucket_and_key word half);
            changed_at = limiter_decision::engine::changed::changed_at, (maps) (word word);
            converted = limiter_decision::engine::changed::converted, (maps) (word word word word);
            store = limiter_decision::engine::changed::store, () (bucket word word word);
            begin_drops = limiter_decision::engine::source::begin_drops, (maps) (bucket_key);
            count_over = limiter_decision::engine::source::count_over, (maps) (bucket_key word);
            count_source = limiter_decision::engine::source::count_source,
                (maps) (bucket_key half word);
            undo_bucket_key = limiter_decision::engine::source::undo_bucket_key,
                (maps) (bucket_key word word word);
            judge_aggregate = limiter_decision::entries::aggregate::judge_aggregate,
                (maps) (bucket_key half word word);
            debt = limiter_decision::entries::aggregate::debt, (maps) (bucket_key half);
            admit = limiter_decision::entries::admission::admit, (maps) (half word word);
            // Entries of hash maps.
            reserve = limiter_decision::engine::entry::reserve, (maps) (half word);
            probe = limiter_decision::engine::entry::probe, (maps) (half half word);
            evict_source = limiter_decision::engine::entry::evict_source,
                (maps) (word half word word);
            make = limiter_decision::engine::entry::make, (maps) (bucket_key word word word);
            // Entries of lines.
            elsewhere = limiter_decision::line::elsewhere, (maps) (bucket_key);
            line_slot = limiter_decision::line::line_slot, (maps) (bucket_key);
            repoint = limiter_decision::line::repoint, (maps) (bucket_key word word word);
            carry = limiter_decision::line::carry, (maps) (bucket_key);
            take_lock = limiter_decision::line::take_lock, () (line);
            victim = limiter_decision::line::victim, () (line half word word);
            lock_lines = limiter_decision::line::lock_lines, (maps) (bucket_key);
            unlock_lines = limiter_decision::line::unlock_lines, (maps) (bucket_key);
            choose = limiter_decision::line::choose, (maps) (bucket_key word);
            leave = limiter_decision::line::leave, (maps) (bucket_key word word);
            settle = limiter_decision::line::settle, (maps) (bucket_key word word word);
            count_insert = limiter_decision::line::count_insert, (maps) (half half word);
            // Changes of limits.
            exchange = limiter_decision::meter::exchange, () (units word word);
            owed = limiter_decision::meter::owed, () (units word word);
            proportion = limiter_decision::meter::proportion, () (word word word half);
            instant = limiter_decision::change::instant, (maps) (half half half word);
            // The tables.
            read_clock = limiter_decision::table::read_clock, (maps scratch) ();
            line_up = limiter_decision::table::line_up, (maps scratch) (half);
            judge_compact = limiter_decision::table::judge_compact, (maps scratch) ();
            judge_full = limiter_decision::table::judge_full, (maps scratch) (word);
            set_key = limiter_decision::table::set_key, (maps scratch) (half half);
            look_at_full = limiter_decision::table::look_at_full, (maps scratch) (keyed half);
            plan_second = limiter_decision::table::plan_second, (maps scratch) (keyed half);
            charge_others = limiter_decision::table::charge_others,
                (maps scratch) (keyed half half);
            attempt_one = limiter_decision::table::attempt_one, (maps scratch) (keyed half half);
            fail_full = limiter_decision::table::fail_full, (maps scratch) (keyed half half);
            undo_full = limiter_decision::table::undo_full, (maps scratch) (half);
            look_compact = limiter_decision::table::look_compact, (maps scratch) ();
            look_at_compact = limiter_decision::table::look_at_compact, (maps scratch) (half half);
            charge_at_compact = limiter_decision::table::charge_at_compact, (maps scratch) (half);
            charge_compact = limiter_decision::table::charge_compact, (maps scratch) (half);
            settle_compact = limiter_decision::table::settle_compact, (maps scratch) (half word);
            undo_compact = limiter_decision::table::undo_compact, (maps scratch) (half);
            undo_at_compact = limiter_decision::table::undo_at_compact, (maps scratch) (half);
            run_tables = limiter_decision::table::run_tables, (maps scratch) (half);
            begin = limiter_decision::table::begin, (maps scratch) (half);
            class_range = limiter_decision::table::class_range, (maps scratch) (half half);
            peek = limiter_decision::table::peek, (maps scratch) (option half);
            peek_again = limiter_decision::table::peek_again, (maps scratch) (half);
            refresh = limiter_decision::table::refresh, (maps scratch) (half);
            judge = limiter_decision::engine::source::judge, (maps) (packet);
            over_source = limiter_decision::table::over_source, (maps scratch) (word);
            charge = limiter_decision::table::charge, (maps scratch) (option half);
            charge_planned = limiter_decision::table::charge_planned, (maps scratch) (keyed half);
            charge_rest = limiter_decision::table::charge_rest, (maps scratch) (keyed half);
            charge_shared = limiter_decision::table::charge_shared, (maps scratch) (half);
            fail = limiter_decision::table::fail, (maps scratch) (half half);
            note_dropped = limiter_decision::table::note_dropped,
                (maps scratch) (option half half);
            remember_flow = limiter_decision::table::remember_flow, (maps scratch) ();
            undo_table = limiter_decision::table::undo_table, (maps scratch) (half);
            count_class = limiter_decision::table::count_class, (maps scratch) (half half half);
            plan_charge = limiter_decision::table::plan_charge, (maps scratch) (option half);
            charge_record = limiter_decision::table::charge_record,
                (maps scratch) (keyed half half half);
            note_passed = limiter_decision::table::note_passed, (maps scratch) (option half half);
            delay = limiter_decision::table::delay, (maps scratch) (half);
            wait_for = limiter_decision::table::wait_for, (maps scratch) (half half);
            give_back = limiter_decision::table::give_back, (maps scratch) (option half);
            undo_lease = limiter_decision::table::undo_lease, (maps) (half word word);
            find_leases = limiter_decision::table::find_leases, (maps scratch) (half);
            need_leases = limiter_decision::table::need_leases, (maps scratch) (keyed half);
            ask = limiter_decision::table::ask, (maps scratch) (half half);
            check_limits = limiter_decision::table::check_limits, (maps scratch) (keyed half half);
            peek_limit = limiter_decision::table::limit::peek_limit,
                (maps scratch) (keyed half half half);
            attempt_limit = limiter_decision::table::limit::attempt_limit,
                (maps scratch) (keyed half half half half);
            // The rule of a key, and its conversion to a changed one.
            most_specific = limiter_decision::table::most_specific, (maps scratch) (half);
            of_shape = limiter_decision::table::of_shape, (maps scratch) (half half);
            update = limiter_decision::table::update, (maps scratch) (keyed half half);
            is_used = limiter_decision::table::is_used, (scratch) (keyed);
            probe_keyed = limiter_decision::table::probe_keyed, (maps scratch) (half word);
            evict_keyed = limiter_decision::table::evict_keyed,
                (maps scratch) (half word word word);
            make_keyed = limiter_decision::table::make_keyed,
                (maps scratch) (half word half word);
            freeze = limiter_decision::table::freeze, (scratch) (keyed half);
            clear_fresh = limiter_decision::table::clear_fresh, (scratch) ();
            store_fresh = limiter_decision::table::store_fresh, (scratch) (keyed half);
            limit_words = limiter_decision::table::limit_words,
                (maps scratch) (keyed half half half word);
            limit_used = limiter_decision::table::limit::limit_used,
                (maps scratch) (keyed half half half);
            limit_fill = limiter_decision::table::limit::limit_fill,
                (maps scratch) (keyed half half word);
            limit_change = limiter_decision::table::limit::limit_change, (maps) (half half half);
            limit_whole = limiter_decision::table::limit::limit_whole,
                (maps scratch) (half half);
            limit_changed_at = limiter_decision::table::limit::limit_changed_at,
                (maps scratch) (half half);
            seed_at = limiter_decision::table::limit::seed_at, (maps scratch) (half half word);
            limit_raised = limiter_decision::table::limit::limit_raised,
                (maps) (half half half word);
            limit_converted = limiter_decision::table::limit::limit_converted,
                (maps) (half half half word);
            limit_word = limiter_decision::table::limit::limit_word,
                (maps scratch) (keyed half half word word);
            // Actions.
            act = limiter_decision::act::act, (maps scratch) (frame word);
            mark = limiter_decision::act::mark, (scratch) (frame half);
            reply_kind = limiter_decision::act::reply_kind, (scratch) (frame);
            spend = limiter_decision::table::spend, (maps scratch) (half half);
            answer = limiter_decision::act::answer, (scratch) (frame half);
            unreachable_v4 = limiter_decision::act::unreachable_v4, () (frame half);
            unreachable_v6 = limiter_decision::act::unreachable_v6, () (frame half);
            reset_v4 = limiter_decision::act::reset_v4, () (frame half);
            reset_v6 = limiter_decision::act::reset_v6, () (frame half);
            is_last = limiter_decision::act::is_last, (maps scratch) (half);
            strike = limiter_decision::act::strike, (maps scratch) (half half half);
        }
    };
}

/// Declares subprograms as BPF functions: for each, a function that puts arguments into registers
/// and calls it.
#[macro_export]
macro_rules! declare_subprograms {
    ($($name:ident = $path:path, ($($given:ident)*) ($($kind:ident)*);)*) => {
        $($crate::declare_subprograms!(@ $name [a b c d e] () () () $($kind)*);)*
    };
    (@ $name:ident $left:tt ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)) => {
        #[doc = concat!("Calls the BPF function `", stringify!($name), "`.")]
        #[cfg_attr(target_arch = "bpf", inline(always))]
        pub fn $name($($from)*) -> u64 {
            unsafe extern "C" {
                safe fn $name($($raw)*) -> u64;
            }
            $name($($to)*)
        }
    };
    (@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        word $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*] ($($raw)* $a: u64,)
            ($($from)* $a: impl $crate::register::Register,)
            ($($to)* $crate::register::Register::to_register($a),) $($kind)*);
    };
    (@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        entry $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*]
            ($($raw)* $a: *mut limiter_common::wire::KeyedEntry,)
            ($($from)* $a: core::ptr::NonNull<limiter_common::wire::KeyedEntry>,)
            ($($to)* $a.as_ptr(),)
            $($kind)*);
    };
    (@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        key $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*]
            ($($raw)* $a: *mut limiter_common::wire::TableKey,)
            ($($from)* $a: core::ptr::NonNull<limiter_common::wire::TableKey>,)
            ($($to)* $a.as_ptr(),)
            $($kind)*);
    };
    (@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        half $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*] ($($raw)* $a: u32,)
            ($($from)* $a: impl $crate::register::Register,)
            ($($to)* $crate::register::half($a),) $($kind)*);
    };
    (@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        line $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*] ($($raw)* $a: u64,)
            ($($from)* $a: &impl $crate::line::Line,)
            ($($to)* $crate::line::Line::number($a),) $($kind)*);
    };
    (@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        keyed $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*] ($($raw)* $a: *mut u8,)
            ($($from)* $a: &impl $crate::maps::Keyed,)
            ($($to)* $crate::maps::Keyed::address($a),) $($kind)*);
    };
    (@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        frame $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*] ($($raw)* $a: *mut u8,)
            ($($from)* $a: &impl $crate::act::FrameMut,)
            ($($to)* $crate::act::FrameMut::address($a),) $($kind)*);
    };
    (@@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        $frame:ident half $($kind:ident)*) => {
        $crate::declare_subprograms!(@@ $name [$($left)*] ($($raw)* $a: u32,)
            ($($from)* $a: impl $crate::register::Register,)
            ($($to)* $crate::register::half($a),) $frame $($kind)*);
    };
    (@ $name:ident [$a:ident $($left:ident)*] () () () twin $($kind:ident)*) => {
        $crate::declare_subprograms!(@@ $name [$($left)*] ($a: *mut u8,)
            ($a: &(impl $crate::act::FrameMut + $crate::packet::Bytes),)
            ($crate::act::FrameMut::address($a),) $a $($kind)*);
    };
    (@@ $name:ident $left:tt ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*) $frame:ident) => {
        #[doc = concat!("Calls the BPF function `", stringify!($name), "`.")]
        #[cfg_attr(target_arch = "bpf", inline(always))]
        pub fn $name($($from)*) -> u64 {
            unsafe extern "C" {
                safe fn $name($($raw)*) -> u64;
                #[link_name = concat!(stringify!($name), "_l3")]
                safe fn l3($($raw)*) -> u64;
            }
            if $crate::subprograms::is_layer_3($frame) { l3($($to)*) } else { $name($($to)*) }
        }
    };
    (@@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        $frame:ident word $($kind:ident)*) => {
        $crate::declare_subprograms!(@@ $name [$($left)*] ($($raw)* $a: u64,)
            ($($from)* $a: impl $crate::register::Register,)
            ($($to)* $crate::register::Register::to_register($a),) $frame $($kind)*);
    };
    (@ $name:ident [$a:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*) ($($to:tt)*)
        option $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*] ($($raw)* $a: *mut u8,)
            ($($from)* $a: Option<&impl $crate::maps::Keyed>,)
            ($($to)* match $a {
                Some(bucket) => $crate::maps::Keyed::address(bucket),
                None => core::ptr::null_mut(),
            },) $($kind)*);
    };
    (@ $name:ident [$a:ident $b:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*)
        ($($to:tt)*) source $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*] ($($raw)* $a: u64, $b: u32,)
            ($($from)* $a: &limiter_common::source::Source,)
            ($($to)* $a.to_word().0, $a.to_word().1,) $($kind)*);
    };
    (@ $name:ident [$a:ident $b:ident $($left:ident)*] ($($raw:tt)*) ($($from:tt)*)
        ($($to:tt)*) bucket_key $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*] ($($raw)* $a: u64, $b: u32,)
            ($($from)* $a: &limiter_common::bucket_key::BucketKey,)
            ($($to)* $a.word(), $a.kind().index(),) $($kind)*);
    };
    (@ $name:ident [$a:ident $b:ident $c:ident $d:ident $($left:ident)*] ($($raw:tt)*)
        ($($from:tt)*) ($($to:tt)*) packet $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*]
            ($($raw)* $a: u64, $b: u64, $c: u64, $d: u64,)
            ($($from)* $a: &$crate::engine::SourcePacket,)
            ($($to)* $a.registers()[0], $a.registers()[1], $a.registers()[2], $a.registers()[3],)
            $($kind)*);
    };
    (@ $name:ident [$a:ident $b:ident $c:ident $($left:ident)*] () () () units
        $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*] ($a: u64, $b: u64, $c: u64,)
            ($a: &$crate::meter::Units,)
            ($a.registers()[0], $a.registers()[1], $a.registers()[2],) $($kind)*);
    };
    (@ $name:ident [$a:ident $b:ident $c:ident $d:ident $e:ident] () () ()
        bucket_packet) => {
        $crate::declare_subprograms!(@ $name []
            ($a: *mut u8, $b: u64, $c: u64, $d: u64, $e: u64)
            ($a: &impl $crate::cell::SourceBucket, $b: &$crate::engine::SourcePacket)
            ($crate::cell::SourceBucket::address($a), $b.registers()[0], $b.registers()[1],
                $b.registers()[2], $b.registers()[3]));
    };
    (@ $name:ident [$a:ident $b:ident $c:ident $($left:ident)*] () () ()
        bucket_and_key $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*]
            ($a: *mut u8, $b: u64, $c: u32,)
            ($a: &impl $crate::cell::SourceBucket, $b: &limiter_common::bucket_key::BucketKey,)
            ($crate::cell::SourceBucket::address($a), $b.word(), $b.kind().index(),) $($kind)*);
    };
    (@ $name:ident [$a:ident $b:ident $($left:ident)*] () () () bucket $($kind:ident)*) => {
        $crate::declare_subprograms!(@ $name [$($left)*]
            ($a: *mut u8, $b: u64,)
            ($a: &impl $crate::cell::SourceBucket,)
            ($crate::cell::SourceBucket::address($a), $crate::cell::SourceBucket::name($a),)
            $($kind)*);
    };
}

/// True if a frame begins with its IP header.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn is_layer_3<B: Bytes>(_frame: &B) -> bool {
    B::LAYER_3
}

/// The subprograms as BPF functions.
#[cfg(target_arch = "bpf")]
#[expect(
    unsafe_code,
    reason = "declared as safe to call: limiter-ebpf makes them of the same rows"
)]
pub mod call {
    subprograms!(declare_subprograms);
}
