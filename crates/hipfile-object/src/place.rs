//! From a URL to a store and the path of an object in it. It asks no server anything.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use rustix::io::Errno;
use url::{Position, Url};

use crate::error::{Error, Result};

/// The schemes that name an object.
const SCHEMES: &[&str] = &["s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https", "file"];

/// Whether a text is meant as the URL of an object, as opposed to the name of a file: it begins with a scheme that this
/// crate serves and `://`.
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()))
}

/// Where an object is or will be.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) path: Path,
    /// Whether it may be written in several parts. HTTP knows one PUT only.
    pub(crate) takes_parts: bool,
}

/// How long a request may take, and for how long it is made again.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) retry: RetryConfig,
    /// All of a request. Settings and the environment win.
    pub(crate) most: Duration,
    /// Until more of an answer comes; `None`: as long as all of it.
    pub(crate) silence: Option<Duration>,
}

impl Patience {
    /// As the settings of clients, but for what somebody has set: what is there, and what is if nobody says anything.
    fn unless_set(&self, set: impl Fn(ClientConfigKey) -> bool) -> Vec<(ClientConfigKey, String)> {
        let silence = self.silence.map(|silence| (ClientConfigKey::ReadTimeout, silence));
        let all = silence.into_iter().chain([(ClientConfigKey::Timeout, self.most)]);
        all.filter(|(key, _)| !set(*key))
            .map(|(key, value)| (key, format!("{}s", value.as_secs().max(1))))
            .collect()
    }
}

/// A builder of a store, with our patience where nobody has set another.
macro_rules! patient {
    ($builder:ident, $key:ident, [$($endpoint:ident),*], $text:expr, $patience:expr, $settings:expr) => {{
        let usual = $builder::new();
        let builder = $builder::from_env().with_url($text).with_retry($patience.retry.clone());
        let is_set = |key| {
            let key = $key::Client(key);
            builder.get_config_value(&key) != usual.get_config_value(&key)
        };
        let ours = $patience.unless_set(is_set);
        let builder = ours
            .into_iter()
            .fold(builder, |builder, (key, value)| builder.with_config($key::Client(key), value));
        let builder =
            known::<$key>($settings).fold(builder, |builder, (key, value)| builder.with_config(key, value));
        let endpoints = [$($key::$endpoint),*].into_iter().filter_map(|key| builder.get_config_value(&key));
        match endpoints.into_iter().find(|endpoint| !is_server(endpoint)) {
            Some(endpoint) => {
                let why = format!("the endpoint {endpoint:?} is no URL of a server: http://host:port is meant");
                Err(Error::new($text, Errno::INVAL.raw_os_error(), why))
            }
            None => Ok(builder),
        }
    }};
}

impl Place {
    pub(crate) fn find(text: &str, patience: &Patience, settings: &[(String, String)]) -> Result<Place> {
        let invalid = |why: String| Error::new(text, Errno::INVAL.raw_os_error(), why);
        if !is_url(text) {
            return Err(invalid(format!(
                "it is no URL of an object: {} are known",
                SCHEMES.join("://, ") + "://"
            )));
        }
        // Whoever reads URLs leaves these out.
        if text.trim() != text || text.contains(|c: char| c.is_ascii_control()) {
            return Err(invalid(
                "a URL has no blank at its ends, which is written %20, and no control character".into(),
            ));
        }
        let url = Url::parse(text).map_err(|error| invalid(error.to_string()))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid(
                "a URL with ? or # is not served: write %3F or %23 if the name has one".into(),
            ));
        }
        let is_http = matches!(url.scheme(), "http" | "https");
        let (scheme, path) = match is_http {
            // Whoever the host is: a plain server needs no credentials.
            true => {
                let path = Path::from_url_path(url.path()).map_err(|error| invalid(error.to_string()))?;
                (ObjectStoreScheme::Http, path)
            }
            false => ObjectStoreScheme::parse(&url).map_err(|error| invalid(error.to_string()))?,
        };
        if path.as_ref().is_empty() || url.path().ends_with('/') {
            return Err(invalid("it names no object".into()));
        }
        let store: object_store::Result<Arc<dyn ObjectStore>> = match scheme {
            ObjectStoreScheme::AmazonS3 => {
                let builder = patient!(
                    AmazonS3Builder,
                    AmazonS3ConfigKey,
                    [Endpoint, S3Endpoint, MetadataEndpoint],
                    text,
                    patience,
                    settings
                )?;
                builder.build().map(|store| Arc::new(store) as _)
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                let builder = patient!(
                    GoogleCloudStorageBuilder,
                    GoogleConfigKey,
                    [BaseUrl],
                    text,
                    patience,
                    settings
                )?;
                builder.build().map(|store| Arc::new(store) as _)
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let builder = patient!(
                    MicrosoftAzureBuilder,
                    AzureConfigKey,
                    [Endpoint, MsiEndpoint],
                    text,
                    patience,
                    settings
                )?;
                builder.build().map(|store| Arc::new(store) as _)
            }
            ObjectStoreScheme::Http => {
                let ours = patience.unless_set(|_| false).into_iter();
                let options = ours.fold(ClientOptions::new().with_allow_http(true), |o, (key, value)| {
                    o.with_config(key, value)
                });
                let options = known::<ClientConfigKey>(settings)
                    .fold(options, |o, (key, value)| o.with_config(key, value));
                let builder = HttpBuilder::new().with_url(&url[..Position::BeforePath]);
                let builder = builder.with_client_options(options).with_retry(patience.retry.clone());
                builder.build().map(|store| Arc::new(store) as _)
            }
            ObjectStoreScheme::Local => {
                // Renaming would put a file in the place of a device.
                let there = std::fs::metadata(std::path::Path::new("/").join(path.as_ref()));
                if there.is_ok_and(|there| !there.is_file()) {
                    return Err(invalid("it is no regular file".into()));
                }
                Ok(Arc::new(LocalFileSystem::new()))
            }
            other => return Err(invalid(format!("{other:?} is no store that is served here"))),
        };
        let store = store.map_err(|error| Error::store(text, error))?;
        Ok(Place { url: text.into(), store, path, takes_parts: !is_http })
    }
}

/// Whether requests can be sent there: what is no URL would end the process in the client.
fn is_server(endpoint: &str) -> bool {
    Url::parse(endpoint).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Those of the settings that this kind of store has.
fn known<K: std::str::FromStr>(settings: &[(String, String)]) -> impl Iterator<Item = (K, &str)> {
    settings
        .iter()
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.as_str())))
}

/// The first of the settings that no kind of store has.
pub(crate) fn unknown(settings: &[(String, String)]) -> Option<&str> {
    let unknown = settings.iter().find(|setting| {
        let one = std::slice::from_ref(*setting);
        known::<AmazonS3ConfigKey>(one).next().is_none()
            && known::<GoogleConfigKey>(one).next().is_none()
            && known::<AzureConfigKey>(one).next().is_none()
            && known::<ClientConfigKey>(one).next().is_none()
    });
    unknown.map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Result<Place> {
        crate::objects::use_ring();
        Place::find(text, &patience(), &[])
    }

    fn patience() -> Patience {
        let retry = RetryConfig::default();
        Patience { retry, most: Duration::from_secs(600), silence: Some(Duration::from_secs(30)) }
    }

    #[test]
    fn urls_are_told_from_names() {
        for url in ["s3://b/k", "S3://b/k", "gs://b/k", "az://c/k", "http://h/k", "https://h/k", "file:///k"]
        {
            assert!(is_url(url), "{url}");
        }
        for name in ["", "s3", "s3:/b/k", "./s3://b/k", "/s3://b/k", "ftp://h/k", "memory:///k", "a b://c"] {
            assert!(!is_url(name), "{name}");
            let error = find(name).unwrap_err();
            assert_eq!(error.errno(), Errno::INVAL.raw_os_error());
        }
    }

    #[test]
    fn what_names_no_object_is_refused_by_name() {
        for (url, why) in [
            ("s3://bucket", "names no object"),
            ("s3://bucket/", "names no object"),
            ("s3://bucket/folder/", "names no object"),
            ("https://host/", "names no object"),
            ("https://host/a?b=c", "with ?"),
            ("https://host/a#b", "with ? or #"),
            ("http://", "empty host"),
            ("s3://bucket/key ", "no blank at its ends"),
            ("s3://bucket/a\tb", "no control character"),
        ] {
            let error = find(url).unwrap_err().to_string();
            assert!(error.starts_with(url) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_somebody_has_set_is_left_alone() {
        let all = patience().unless_set(|_| false);
        let ours =
            [(ClientConfigKey::ReadTimeout, "30s".to_owned()), (ClientConfigKey::Timeout, "600s".to_owned())];
        assert_eq!(all, ours);
        assert_eq!(patience().unless_set(|key| key == ClientConfigKey::Timeout), ours[..1]);
        crate::objects::use_ring();
        let timeout = |settings: &[(String, String)]| {
            let builder: Result<AmazonS3Builder> =
                patient!(AmazonS3Builder, AmazonS3ConfigKey, [Endpoint], "s3://b/k", patience(), settings);
            let builder = builder.unwrap();
            builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::Timeout))
        };
        assert_eq!(timeout(&[]).as_deref(), Some("600s"));
        assert_eq!(timeout(&[("timeout".into(), "7s".into())]).as_deref(), Some("7s"));
    }

    #[test]
    fn an_endpoint_that_is_no_url_is_refused_by_name() {
        crate::objects::use_ring();
        for (url, setting) in
            [("s3://b/k", "aws_endpoint"), ("az://c/k", "azure_endpoint"), ("gs://b/k", "base_url")]
        {
            for endpoint in ["", "localhost:9000", "garbage", "http://", "http://[", "ftp://host"] {
                let settings = [
                    (setting.to_owned(), endpoint.to_owned()),
                    ("azure_storage_account_name".into(), "a".into()),
                ];
                let error = Place::find(url, &patience(), &settings).unwrap_err();
                assert_eq!(error.errno(), Errno::INVAL.raw_os_error(), "{error}");
                assert!(error.to_string().contains("is no URL of a server"), "{error}");
            }
        }
        let settings = [("aws_endpoint".to_owned(), "http://127.0.0.1:9000".to_owned())];
        assert!(Place::find("s3://b/k", &patience(), &settings).is_ok());
    }

    #[test]
    fn what_is_no_regular_file_is_no_local_object() {
        for url in ["file:///dev/null", "file:///dev/stdout", "file:///tmp"] {
            let error = find(url).unwrap_err();
            assert!(error.to_string().contains("no regular file"), "{error}");
        }
        assert!(find("file:///tmp/no-such-file-yet").is_ok());
    }

    #[test]
    fn a_name_with_escapes_is_the_name() {
        let place = find("https://host/a%20b/c%2Bd").unwrap();
        assert_eq!((place.path.as_ref(), place.takes_parts), ("a b/c+d", false));
        let place = find("file:///tmp/a%20b").unwrap();
        assert_eq!((place.path.as_ref(), place.takes_parts), ("tmp/a b", true));
    }
}
