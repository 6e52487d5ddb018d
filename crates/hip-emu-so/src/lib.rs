//! hip-emu-so
