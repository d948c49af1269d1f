//! Egress rules, ceilings, containment and explain: one exact decision.
