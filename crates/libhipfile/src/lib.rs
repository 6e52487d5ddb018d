//! libhipfile
