//! Which GPU a tool works on: the one that the environment names, else a real one, else the emulated one. It opens the
//! driver and describes the device; it allocates nothing.

use hipfile::monitor::Statistics;
use hipfile::{Config, DeviceInfo, Driver};

use crate::failure::Failure;

/// Opens the driver for GPU `ordinal`. On a machine with no GPU the emulated one serves, and the library says so on standard
/// error; `HIPFILE_DEVICE` overrides, and then nothing else serves.
pub(crate) fn open(ordinal: u32) -> Result<(Driver, DeviceInfo), Failure> {
    let (driver, devices) = connect(config()).map_err(|error| Failure::new("GPU", error))?;
    let count = devices.len();
    match devices.into_iter().find(|device| device.ordinal == ordinal) {
        Some(device) => Ok((driver, device)),
        None => Err(Failure::new(
            format_args!("GPU {ordinal}"),
            format_args!("there is no such GPU (found: {count}, counted from 0)"),
        )),
    }
}

/// What the environment asks for, with the emulated GPU where there is none: one driver from the start, since who watches this
/// process looks at the pages of its first.
pub(crate) fn config() -> Config {
    let mut config = Config::from_env();
    config.emulated_without_gpu = true;
    config
}

fn connect(mut config: Config) -> hipfile::Result<(Driver, Vec<DeviceInfo>)> {
    let driver = match config.stats_level {
        // The tool itself tells what moved; nobody else is shown it then.
        0 => {
            config.stats_level = 1;
            Driver::open_with(config, &Statistics::new())?
        }
        _ => Driver::open(config)?,
    };
    let devices = driver.devices()?;
    Ok((driver, devices))
}
