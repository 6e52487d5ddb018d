//! Foreign GPU ABIs as function tables, and the only `dlopen` of the project. It decides nothing:
//! which runtime is used, and what its answers mean, is the caller's business.

pub mod hip;
pub mod library;
mod table;
