//! Which GPU a tool works on: the one that the environment names, else a real one, else the emulated one. It opens the
//! driver and describes the device; it allocates nothing.

use hipfile::monitor::Statistics;
use hipfile::{Config, DeviceChoice, DeviceInfo, Driver, ErrorKind};

use crate::failure::Failure;

/// hipErrorNoDevice: a runtime is installed, but it sees no GPU.
const NO_DEVICE: i32 = 100;

/// Opens the driver for GPU `ordinal`. On a machine with no GPU the emulated one serves, and the library says so on standard
/// error; `HIPFILE_DEVICE` overrides, and then nothing else serves.
pub(crate) fn open(ordinal: u32) -> Result<(Driver, DeviceInfo), Failure> {
    let config = Config::from_env();
    let (driver, devices) = match connect(config.clone()) {
        Err(error) if config.device == DeviceChoice::Auto && means_no_gpu(&error) => {
            let mut config = config;
            config.device = DeviceChoice::Emulated;
            connect(config)
        }
        other => other,
    }
    .map_err(|error| Failure::new("GPU", error))?;
    let count = devices.len();
    match devices.into_iter().find(|device| device.ordinal == ordinal) {
        Some(device) => Ok((driver, device)),
        None => Err(Failure::new(
            format_args!("GPU {ordinal}"),
            format_args!("there is no such GPU (found: {count}, counted from 0)"),
        )),
    }
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

fn means_no_gpu(error: &hipfile::Error) -> bool {
    error.kind() == ErrorKind::PlatformNotSupported
        || (error.kind() == ErrorKind::HipDriverError && error.device_code() == Some(NO_DEVICE))
}
