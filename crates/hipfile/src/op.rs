//! The direction of a transfer, the one word that all layers share. Not the operation itself.

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// From the file to memory.
    Read = 0,
    /// From memory to the file.
    Write = 1,
}

impl Op {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
        }
    }
}
