//! Sets of addresses as sorted, disjoint, non-touching inclusive ranges, with exact set algebra.

/// A number line: IPv4 addresses as `u32`, IPv6 addresses as `u128`.
pub(crate) trait Word: Copy + Ord {
    /// The greatest number.
    const MAX: Self;
    /// The number after this one, if there is one.
    fn next(self) -> Option<Self>;
    /// The number before this one, if there is one.
    fn prev(self) -> Option<Self>;
}

impl Word for u32 {
    const MAX: Self = u32::MAX;
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn prev(self) -> Option<Self> {
        self.checked_sub(1)
    }
}

impl Word for u128 {
    const MAX: Self = u128::MAX;
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn prev(self) -> Option<Self> {
        self.checked_sub(1)
    }
}

/// A set of numbers. The representation is canonical: equal sets are equal values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ranges<W>(Vec<(W, W)>);

impl<W: Word> Ranges<W> {
    /// The set with no member.
    pub(crate) const fn empty() -> Self {
        Self(Vec::new())
    }

    /// One range, both ends included.
    pub(crate) fn one(first: W, last: W) -> Self {
        Self(vec![(first, last)])
    }

    /// The union of ranges in any order, overlapping or not.
    pub(crate) fn union_of(mut ranges: Vec<(W, W)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(W, W)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(open) if open.1 == W::MAX || first <= open.1 || open.1.next() == Some(first) => {
                    open.1 = open.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// The ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (W, W)> + '_ {
        self.0.iter().copied()
    }

    /// The least member.
    pub(crate) fn first(&self) -> Option<W> {
        self.0.first().map(|range| range.0)
    }

    /// The greatest member.
    pub(crate) fn last(&self) -> Option<W> {
        self.0.last().map(|range| range.1)
    }

    /// Whether `word` is a member.
    pub(crate) fn contains(&self, word: W) -> bool {
        let after = self.0.partition_point(|range| range.0 <= word);
        after > 0 && self.0[after - 1].1 >= word
    }

    /// Whether every member is in `other`.
    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().all(|&(first, last)| {
            let after = other.0.partition_point(|range| range.0 <= first);
            after > 0 && other.0[after - 1].1 >= last
        })
    }

    /// The members that are not in `other`.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for &(first, last) in &self.0 {
            let mut from = Some(first);
            let skip = other.0.partition_point(|hole| hole.1 < first);
            for &(hole_first, hole_last) in other.0[skip..].iter().take_while(|hole| hole.0 <= last) {
                let Some(start) = from else { break };
                if let Some(before) = hole_first.prev().filter(|&before| before >= start) {
                    left.push((start, before));
                }
                from = hole_last.next();
            }
            if let Some(start) = from.filter(|&start| start <= last) {
                left.push((start, last));
            }
        }
        Self(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every subset of an eight-word line, at both ends of the number line, where overflow would show.
    fn subsets() -> impl Iterator<Item = (u8, Ranges<u32>, Ranges<u32>)> {
        (0..=u8::MAX).map(|bits| {
            let members = || (0..8u32).filter(move |i| bits >> i & 1 == 1);
            let low = Ranges::union_of(members().map(|i| (i, i)).collect());
            let high = Ranges::union_of(members().map(|i| (u32::MAX - 7 + i, u32::MAX - 7 + i)).collect());
            (bits, low, high)
        })
    }

    fn bits(ranges: &Ranges<u32>, base: u32) -> u8 {
        (0..8u32).filter(|&i| ranges.contains(base + i)).map(|i| 1 << i).sum()
    }

    #[test]
    fn set_algebra_is_exact_on_every_pair_of_subsets_of_eight_words() {
        for (a, a_low, a_high) in subsets() {
            assert_eq!(bits(&a_low, 0), a);
            assert_eq!(a_low.first(), (a != 0).then(|| a.trailing_zeros()));
            assert_eq!(a_low.last(), (a != 0).then(|| 7 - a.leading_zeros()));
            for (b, b_low, b_high) in subsets() {
                assert_eq!(a_low.is_subset(&b_low), a & !b == 0);
                assert_eq!(a_high.is_subset(&b_high), a & !b == 0);
                assert_eq!(bits(&a_low.minus(&b_low), 0), a & !b);
                assert_eq!(bits(&a_high.minus(&b_high), u32::MAX - 7), a & !b);
                let both = Ranges::union_of(a_high.iter().chain(b_high.iter()).collect());
                assert_eq!(bits(&both, u32::MAX - 7), a | b);
                // Canonical: equal sets are equal values, whatever way they were made.
                assert_eq!(a_low.minus(&b_low) == a_low, a & b == 0);
            }
        }
    }
}
