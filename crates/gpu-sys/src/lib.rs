//! Foreign GPU ABIs as function tables, the way to profilers, and the only `dlopen` of the project. It reads no environment and decides
//! little: where to look is the caller's [`LoadOptions`](hip_load::LoadOptions), what the answers mean is the
//! caller's business; only a runtime whose numbers differ from the table's is refused here.

pub mod cuda;
pub mod cuda_load;
pub mod cufile;
mod elf;
pub mod hip;
pub mod hip_load;
pub mod hiprtc;
pub mod library;
pub mod rocprofiler;
mod table;
pub mod verbs;
