//! The steps as plain function calls: the engine of the host.

use core::cell::{Ref, RefCell};

use super::{Code, Scratch, Steps, Tables};
use crate::bucket::Generation;
use crate::engine::{self, Maps, Packed};
use crate::packet::{self, Bytes};
use crate::source::Source;
use crate::time::Ticks;
use crate::wire::RuleSetHeader;

/// One packet on its way through [`super::drive`], on the host.
pub struct Direct<'m, M, B> {
    maps: &'m M,
    frame: &'m B,
    interface: u32,
    scratch: RefCell<Scratch>,
}

impl<'m, M, B> Direct<'m, M, B> {
    /// A frame that came in by an interface.
    pub fn new(maps: &'m M, frame: &'m B, interface: u32) -> Self {
        Self { maps, frame, interface, scratch: RefCell::new(Scratch::empty()) }
    }

    /// What is known of the packet once it was judged.
    pub fn scratch(&self) -> Ref<'_, Scratch> {
        self.scratch.borrow()
    }
}

impl<M: Maps + Tables, B: Bytes> Steps for Direct<'_, M, B> {
    type Pointer = Option<M::Keyed>;

    fn nowhere(&self) -> Self::Pointer {
        None
    }

    fn begin_packet(&self, generation: Generation, header: RuleSetHeader, length: u64, now: Ticks) {
        let mut scratch = self.scratch.borrow_mut();
        // The frame was parsed before: it has facts.
        let _ = packet::facts(self.frame, &mut scratch.facts);
        if header.inner() {
            packet::inner(self.frame, &mut scratch.facts);
        }
        scratch.facts.set_interface(self.interface);
        super::begin_packet(self.maps, &scratch, generation, header, length, now);
    }

    fn drive(&self, tables: u32) -> Packed {
        super::drive(self, tables)
    }

    fn begin(&self, index: u32) -> bool {
        super::begin(self.maps, &self.scratch.borrow(), index)
    }

    fn find(&self, index: u32) -> Self::Pointer {
        super::bucket(self.maps, &self.scratch.borrow(), index)
    }

    fn peek(&self, bucket: Self::Pointer, index: u32) -> Code {
        super::peek(self.maps, bucket, &self.scratch.borrow(), index)
    }

    fn look_again(&self, index: u32) -> Code {
        let scratch = self.scratch.borrow();
        super::look_again(
            || super::peek(self.maps, self.find(index), &scratch, index),
            || super::repair(self.maps, &scratch, index),
        )
    }

    fn charge(&self, bucket: Self::Pointer, index: u32) -> Code {
        super::charge(self.maps, bucket, &self.scratch.borrow(), index)
    }

    fn fail(&self, index: u32, code: Code) -> Packed {
        let drop = || self.dropped(self.nowhere(), index, code);
        super::fail(self.maps, &self.scratch.borrow(), index, drop)
    }

    fn plain_source(
        &self,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
    ) -> Packed {
        engine::plain_source(self.maps, generation, source, length, now)
    }

    fn source(&self) -> Packed {
        super::judge_source(self.maps, &self.scratch.borrow())
    }

    fn over_source(&self, outcome: Packed) -> Packed {
        super::over_source(self.maps, &self.scratch.borrow(), outcome.unpack()).pack()
    }

    fn dropped(&self, bucket: Self::Pointer, index: u32, code: Code) -> Packed {
        super::dropped(self.maps, bucket, &self.scratch.borrow(), index, code).pack()
    }

    fn finish(&self, source: Packed, tables: u32) -> Packed {
        super::finish(self.maps, &self.scratch.borrow(), source, tables)
    }
}
