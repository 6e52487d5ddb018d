//! hip-emu
