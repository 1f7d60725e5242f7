//! Turns subprograms into BPF functions.

use limiter_decision::maps::Maps as _;
use limiter_decision::register::Register;

use crate::maps::Kernel;

/// Makes the BPF functions for a list of subprograms.
macro_rules! define_subprograms {
    ($($name:ident = $path:path, ($($given:ident)*) ($($kind:ident)*);)*) => {
        $(define_subprograms!(@ $name $path, [$($given)*] [a b c d e] () () () $($kind)*);)*
    };
    // The arguments before the semicolon.
    (given maps) => { &$crate::maps::Kernel };
    (given scratch) => { $crate::maps::scratch()? };
    (given facts) => { &$crate::maps::scratch()?.facts };
    // Separate for each store: the verifier walks only one.
    (@ $name:ident $path:path, [$($given:ident)*] $left:tt ($($raw:tt)*)
        (stored $bucket:ident = $stored:expr, $($made:tt)*) ($($argument:tt)*)) => {
        const _: () = {
            #[unsafe(no_mangle)]
            #[inline(never)]
            extern "C" fn $name($($raw)*) -> u64 {
                $crate::define_subprograms::run_subprogram(#[inline(always)] || {
                    $($made)*
                    Some(match $stored {
                        limiter_decision::stored::Stored::Hashed($bucket) => {
                            $path($(define_subprograms!(given $given),)* $($argument)*)
                        }
                        limiter_decision::stored::Stored::Lined($bucket) => {
                            $path($(define_subprograms!(given $given),)* $($argument)*)
                        }
                    })
                })
            }
        };
    };
    (@ $name:ident $path:path, [$($given:ident)*] $left:tt ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*)) => {
        const _: () = {
            #[unsafe(no_mangle)]
            #[inline(never)]
            extern "C" fn $name($($raw)*) -> u64 {
                $crate::define_subprograms::run_subprogram(#[inline(always)] || {
                    $($made)*
                    Some($path($(define_subprograms!(given $given),)* $($argument)*))
                })
            }
        };
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) word $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*] ($($raw)* $a: u64,) ($($made)*)
            ($($argument)* limiter_decision::register::Register::of_register($a),) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) half $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*] ($($raw)* $a: u32,) ($($made)*)
            ($($argument)* limiter_decision::register::Register::of_register(u64::from($a)),)
            $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) entry $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($($raw)* $a: *mut limiter_common::wire::KeyedEntry,) ($($made)*)
            ($($argument)* core::ptr::NonNull::new($a)?,) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) key $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($($raw)* $a: *mut limiter_common::wire::TableKey,) ($($made)*)
            ($($argument)* core::ptr::NonNull::new($a)?,) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) line $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*] ($($raw)* $a: u64,) ($($made)*)
            ($($argument)* &$crate::source_store::lines::MapLine::at($a)?,) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) keyed $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($($raw)* $a: *mut limiter_common::wire::KeyedBucket,) ($($made)*)
            ($($argument)* &$crate::maps::atomic::MapKeyed::at($a)?,) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) option $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($($raw)* $a: *mut limiter_common::wire::KeyedBucket,) ($($made)*)
            ($($argument)* $crate::maps::atomic::MapKeyed::at($a).as_ref(),) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $b:ident $($left:ident)*] ($($raw:tt)*)
        ($($made:tt)*) ($($argument:tt)*) source $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($($raw)* $a: u64, $b: u32,) ($($made)*)
            ($($argument)* &limiter_common::source::Source::from_word($a, $b),) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $b:ident $($left:ident)*] ($($raw:tt)*)
        ($($made:tt)*) ($($argument:tt)*) bucket_key $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($($raw)* $a: u64, $b: u32,) ($($made)*)
            ($($argument)* &limiter_common::bucket_key::BucketKey::of_word($a, $b),) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $b:ident $c:ident $($left:ident)*]
        ($($raw:tt)*) ($($made:tt)*) ($($argument:tt)*) units $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*] ($($raw)* $a: u64, $b: u64, $c: u64,)
            ($($made)*)
            ($($argument)* &limiter_decision::meter::Units::of_registers([$a, $b, $c]),)
            $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $b:ident $c:ident $d:ident $($left:ident)*]
        ($($raw:tt)*) ($($made:tt)*) ($($argument:tt)*) packet $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($($raw)* $a: u64, $b: u64, $c: u64, $d: u64,) ($($made)*)
            ($($argument)* &limiter_decision::engine::SourcePacket::of_registers::<$crate::maps::Kernel>([$a, $b, $c, $d]),)
            $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $b:ident $c:ident $d:ident $e:ident] () () ()
        bucket_packet) => {
        define_subprograms!(@ $name $path, $given []
            ($a: *mut limiter_common::wire::Bucket,
                $b: u64, $c: u64, $d: u64, $e: u64)
            (stored bucket = $crate::source_store::at($a, &packet.bucket_key)?,
                let packet = limiter_decision::engine::SourcePacket::of_registers::<$crate::maps::Kernel>([$b, $c, $d, $e]);)
            (&bucket, &packet));
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $b:ident $c:ident $($left:ident)*] () () ()
        bucket_and_key $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($a: *mut limiter_common::wire::Bucket, $b: u64, $c: u32,)
            (stored bucket = $crate::source_store::at($a, &bucket_key)?,
                let bucket_key = limiter_common::bucket_key::BucketKey::of_word($b, $c);)
            (&bucket, &bucket_key,) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $b:ident $($left:ident)*] () () ()
        bucket $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($a: *mut limiter_common::wire::Bucket, $b: u64,)
            (stored bucket = $crate::source_store::named($a, $b)?,)
            (&bucket,) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) frame $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($($raw)* $a: *mut $crate::hook::Context,) ($($made)*)
            ($($argument)* &$crate::context::Frame::<false>::new($a),) $($kind)*);
    };
    (@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] () () () twin
        $($kind:ident)*) => {
        define_subprograms!(@ $name $path, $given [$($left)*]
            ($a: *mut $crate::hook::Context,) ()
            (&$crate::context::Frame::<false>::new($a),) $($kind)*);
        define_subprograms!(@@ $name $path, $given [$($left)*]
            ($a: *mut $crate::hook::Context,) ()
            (&$crate::context::Frame::<true>::new($a),) $($kind)*);
    };
    (@@ $name:ident $path:path, [$($given:ident)*] $left:tt ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*)) => {
        const _: () = {
            #[unsafe(export_name = concat!(stringify!($name), "_l3"))]
            #[inline(never)]
            extern "C" fn $name($($raw)*) -> u64 {
                $crate::define_subprograms::run_subprogram(#[inline(always)] || {
                    $($made)*
                    Some($path($(define_subprograms!(given $given),)* $($argument)*))
                })
            }
        };
    };
    (@@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) word $($kind:ident)*) => {
        define_subprograms!(@@ $name $path, $given [$($left)*] ($($raw)* $a: u64,) ($($made)*)
            ($($argument)* limiter_decision::register::Register::of_register($a),) $($kind)*);
    };
    (@@ $name:ident $path:path, $given:tt [$a:ident $($left:ident)*] ($($raw:tt)*) ($($made:tt)*)
        ($($argument:tt)*) half $($kind:ident)*) => {
        define_subprograms!(@@ $name $path, $given [$($left)*] ($($raw)* $a: u32,) ($($made)*)
            ($($argument)* limiter_decision::register::Register::of_register(u64::from($a)),)
            $($kind)*);
    };
}

pub(crate) use define_subprograms;

/// Runs a subprogram and returns the register of its BPF function; [`Register::LOST`] if it does
/// not find its own memory.
#[inline(always)]
pub(crate) fn run_subprogram<R: Register>(subprogram: impl FnOnce() -> Option<R>) -> u64 {
    let register = |answer: R| {
        answer.put_out_parameter(|| Kernel.out_parameter());
        answer.to_register()
    };
    match subprogram() {
        Some(answer) => register(answer),
        None => register(R::LOST),
    }
}
