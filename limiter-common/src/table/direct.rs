//! The steps as plain function calls: the engine of the host.

use core::cell::RefCell;

use bytemuck::Zeroable as _;

use super::{Code, Scratch, Steps, Tables};
use crate::bucket::Generation;
use crate::engine::{self, Maps, Outcome};
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
        Self { maps, frame, interface, scratch: RefCell::new(Scratch::zeroed()) }
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
        scratch.facts.set_interface(self.interface);
        super::begin_packet(self.maps, &mut scratch, generation, header, length, now);
    }

    fn begin(&self, index: u32) -> bool {
        super::begin(self.maps, &mut self.scratch.borrow_mut(), index)
    }

    fn find(&self, index: u32) -> Self::Pointer {
        let scratch = self.scratch.borrow();
        self.maps.keyed(scratch.key(index)?)
    }

    fn peek(&self, bucket: Self::Pointer, index: u32) -> Code {
        super::peek(self.maps, bucket, &mut self.scratch.borrow_mut(), index)
    }

    fn mend(&self, index: u32) -> Code {
        super::mend(self.maps, &mut self.scratch.borrow_mut(), index)
    }

    fn charge(&self, bucket: Self::Pointer, index: u32) -> Code {
        super::charge(self.maps, bucket, &mut self.scratch.borrow_mut(), index)
    }

    fn fail(&self, index: u32, code: Code) -> Outcome {
        super::fail(self.maps, &mut self.scratch.borrow_mut(), index, code)
    }

    fn plain_source(
        &self,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
    ) -> Outcome {
        engine::plain_source(self.maps, generation, source, length, now)
    }

    fn source(&self) -> Outcome {
        super::judge_source(self.maps, &mut self.scratch.borrow_mut())
    }

    fn dropped(&self, bucket: Self::Pointer, index: u32, code: Code) -> Outcome {
        super::dropped::<M>(bucket, &self.scratch.borrow(), index, code)
    }

    fn finish(&self, source: Outcome, tables: u32) -> Outcome {
        super::finish(self.maps, &self.scratch.borrow(), source, tables)
    }
}
