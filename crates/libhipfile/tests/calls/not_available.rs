//! Functions of later work: they answer at once, touch nothing and open nothing, in every state of the driver.

use super::*;

/// Calls every one of them with arguments that would crash if they were used.
fn answers() -> Vec<(&'static str, hipFileError_t)> {
    fn bad<T>() -> *mut T {
        core::ptr::without_provenance_mut(8)
    }
    macro_rules! call {
        ($($function:ident($($argument:expr),*);)*) => {
            vec![$((stringify!($function), {
                // SAFETY: none of them looks at its arguments in this version, which is what is tested.
                unsafe { $function($($argument),*) }
            })),*]
        };
    }
    call! {
        hipFileGetStatsL1(bad());
        hipFileGetStatsL2(bad());
        hipFileGetStatsL3(core::ptr::null_mut());
    }
}

#[test]
fn they_answer_internal_error_in_every_state() {
    start();
    let check = |count| {
        for (function, answer) in answers() {
            assert_eq!(code(answer), hipFileInternalError, "{function}");
        }
        assert_eq!(hipFileUseCount(), count);
    };
    check(0);
    ok(hipFileDriverOpen());
    check(1);
    ok(hipFileDriverClose());
    check(0);
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
}

#[test]
fn the_statistics_client_judges_its_arguments() {
    start();
    let some = core::ptr::without_provenance_mut::<hipFileStatsContext_t>(8);
    let mut context;
    // SAFETY: NULL is allowed.
    let create = |ctx: *mut _, pid| unsafe { hipFileStatsCreateContext(ctx, pid) };
    assert_eq!(create(core::ptr::null_mut(), 1), hipFileStatsInvalidArgument);
    for pid in [0, -1, c_int::MIN] {
        context = some;
        assert_eq!(create(&raw mut context, pid), hipFileStatsInvalidArgument);
        assert!(context.is_null());
    }
    context = some;
    assert_eq!(create(&raw mut context, 1), hipFileStatsTargetProcessNotAccessible);
    assert!(context.is_null());
    let null = core::ptr::null_mut();
    assert_eq!(hipFileStatsConnectToTargetProcess(null), hipFileStatsInvalidArgument);
    assert_eq!(hipFileStatsConnectToTargetProcess(some), hipFileStatsTargetProcessNotAccessible);
    assert_eq!(hipFileStatsPollTargetProcess(null, false), hipFileStatsInvalidArgument);
    assert_eq!(hipFileStatsPollTargetProcess(some, false), hipFileStatsTargetProcessNotAccessible);
    assert_eq!(hipFileStatsGenerateReport(null, 1), hipFileStatsInvalidArgument);
    assert_eq!(hipFileStatsGenerateReport(some, -1), hipFileStatsInvalidArgument);
    assert_eq!(hipFileStatsGenerateReport(some, 1), hipFileStatsReportGenerationFailed);
    hipFileStatsCloseContext(null);
    hipFileStatsCloseContext(some);
}
