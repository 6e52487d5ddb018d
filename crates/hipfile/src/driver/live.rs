//! What changes while a driver is open: settings that are live, and the staging memory held. It moves nothing.

use std::sync::PoisonError;

use super::Driver;
use crate::config::{Config, Invalid, Setting, Value};

impl Driver {
    /// The settings as they are now, with what [`Driver::change`] did.
    pub fn settings(&self) -> Config {
        self.inner.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes settings that are live: all of them, or none.
    ///
    /// # Errors
    /// Why one cannot be changed, or not to this value.
    pub fn change(&self, changes: &[(&'static Setting, Value)]) -> Result<(), Invalid> {
        if self.in_forked_child() {
            return Err(Invalid::Frozen("the driver was opened before fork".into()));
        }
        let mut now = self.inner.now.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = now.clone();
        for (setting, value) in changes {
            if !setting.live {
                return Err(Invalid::Frozen(format!("{} is frozen while the driver is open", setting.name)));
            }
            setting.set(&mut next, value)?;
        }
        next.check_live()?;
        let streams = self.inner.lanes.limit(next.stream_max());
        if next.pinned_max < streams + next.block_len {
            let why = format!("{} bytes: streams have {streams} already, pinned", next.pinned_max);
            return Err(Invalid::Range(why));
        }
        self.inner.blocks.limit(next.pool_max(streams));
        self.inner.limits.follow(&next);
        *now = next;
        Ok(())
    }

    /// Gives staging memory that is not in use back to the system now. Bytes given back.
    pub fn trim(&self) -> usize {
        if self.in_forked_child() { 0 } else { self.inner.blocks.trim(0) }
    }

    /// Bytes of staging memory held now.
    pub fn staging_bytes(&self) -> usize {
        self.inner.blocks.resident()
    }

    /// Most bytes of staging memory, as the settings are now.
    pub fn staging_max(&self) -> usize {
        self.inner.blocks.most()
    }
}
