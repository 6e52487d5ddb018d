//! The macros that turn lists of C prototypes and codes into Rust. They know no library.

/// Declares a struct of function pointers from C prototypes.
///
/// `required` functions must resolve, or [`from_resolver`](crate::hip::HipApi::from_resolver) names the first
/// missing one; `optional` ones become `Option`s, so that their absence is a fact known before a call.
macro_rules! function_table {
    (
        $(#[$meta:meta])*
        pub struct $Table:ident;
        required { $( $(#[$rmeta:meta])* fn $rname:ident($($rarg:ident: $rty:ty),* $(,)?) -> $rret:ty; )* }
        optional { $( $(#[$ometa:meta])* fn $oname:ident($($oarg:ident: $oty:ty),* $(,)?) -> $oret:ty; )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        #[allow(non_snake_case, missing_docs, reason = "fields are the C functions of those names")]
        pub struct $Table {
            $( $(#[$rmeta])* pub $rname: unsafe extern "C" fn($($rarg: $rty),*) -> $rret, )*
            $( $(#[$ometa])* pub $oname: Option<unsafe extern "C" fn($($oarg: $oty),*) -> $oret>, )*
        }

        impl $Table {
            /// Names of the functions without which the table cannot be filled.
            pub const REQUIRED: &'static [&'static str] = &[$(stringify!($rname)),*];
            /// Names of the functions that may be absent.
            pub const OPTIONAL: &'static [&'static str] = &[$(stringify!($oname)),*];

            /// Fills the table through `resolve`, which answers null for an unknown name.
            ///
            /// # Errors
            /// The name of the first required function that does not resolve.
            ///
            /// # Safety
            /// Every non-null address `resolve` gives must be a function of the prototype declared for its name
            /// in this table, callable for the rest of the process's life.
            pub unsafe fn from_resolver(
                mut resolve: impl FnMut(&'static core::ffi::CStr) -> *mut core::ffi::c_void,
            ) -> Result<Self, &'static str> {
                Ok($Table {
                    $($rname: {
                        let address = resolve($crate::table::c_name(concat!(stringify!($rname), "\0")));
                        if address.is_null() {
                            return Err(stringify!($rname));
                        }
                        // SAFETY: the caller promises that a non-null address has this prototype.
                        unsafe {
                            core::mem::transmute::<
                                *mut core::ffi::c_void,
                                unsafe extern "C" fn($($rty),*) -> $rret,
                            >(address)
                        }
                    },)*
                    $($oname: {
                        let address = resolve($crate::table::c_name(concat!(stringify!($oname), "\0")));
                        // SAFETY: the caller promises that a non-null address has this prototype, and null is
                        // the None of an optional function pointer.
                        unsafe {
                            core::mem::transmute::<
                                *mut core::ffi::c_void,
                                Option<unsafe extern "C" fn($($oty),*) -> $oret>,
                            >(address)
                        }
                    },)*
                })
            }
        }

        impl core::fmt::Debug for $Table {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($Table)).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use function_table;

pub(crate) fn c_name(with_nul: &'static str) -> &'static core::ffi::CStr {
    match core::ffi::CStr::from_bytes_with_nul(with_nul.as_bytes()) {
        Ok(name) => name,
        Err(_) => unreachable!("the macro appends the only NUL"),
    }
}

/// Names codes of a transparent number by constants, and knows their C names.
macro_rules! named_codes {
    ($Code:ident; $($name:ident = $value:literal, $c:literal;)*) => {
        #[allow(missing_docs, reason = "the C name says it")]
        impl $Code {
            $(pub const $name: $Code = $Code($value);)*

            /// Every code named here, with its C name.
            pub const NAMED: &'static [($Code, &'static str)] = &[$(($Code($value), $c)),*];

            /// The C name, when it is a named one.
            pub fn name(self) -> Option<&'static str> {
                Self::NAMED.iter().find(|(code, _)| *code == self).map(|(_, name)| *name)
            }
        }
    };
}
pub(crate) use named_codes;
