//! Types that are one word of a map.

/// The conversions of a type to its word and back.
#[macro_export]
macro_rules! raw_word {
    ($name:ident) => {
        impl $name {
            /// Takes the word from a map, or from a call of a subprogram.
            #[cfg_attr(target_arch = "bpf", inline(always))]
            pub const fn from_raw(raw: u64) -> Self {
                Self(raw)
            }

            /// The word for a map, or for a call of a subprogram.
            #[cfg_attr(target_arch = "bpf", inline(always))]
            pub const fn raw(self) -> u64 {
                self.0
            }
        }
    };
}
