//! hipfile
