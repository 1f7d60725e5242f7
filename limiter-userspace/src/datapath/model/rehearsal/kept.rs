//! Values that are read once and then stay where they are, so that they can be lent.

use std::cell::OnceCell;

/// A list that only grows. A question about one packet reads few entries of each kind.
#[derive(Debug)]
pub(super) struct Kept<K, V>(OnceCell<Box<Node<K, V>>>);

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    value: Option<V>,
    next: OnceCell<Box<Self>>,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(OnceCell::new())
    }
}

impl<K: PartialEq, V> Kept<K, V> {
    /// The value of a key; read at the first time.
    pub(super) fn get(&self, key: K, read: impl FnOnce() -> Option<V>) -> Option<&V> {
        let mut place = &self.0;
        while let Some(node) = place.get() {
            if node.key == key {
                return node.value.as_ref();
            }
            place = &node.next;
        }
        let value = read();
        place.get_or_init(|| Box::new(Node { key, value, next: OnceCell::new() })).value.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;

    #[test]
    fn every_key_is_read_once() {
        let kept = Kept::default();
        for round in 0..3 {
            for key in 0..5 {
                let value = kept.get(key, || (round == 0 && key != 3).then_some(key * 2));
                assert_eq!(value.copied(), (key != 3).then_some(key * 2));
            }
        }
    }
}
