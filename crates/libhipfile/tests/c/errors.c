/* errors: hipFileGetOpErrorString and the header's error macros. */
#include <limits.h>

#include "check.h"

static const int CODES[] = {
    hipFileSuccess,
    hipFileDriverNotInitialized,
    hipFileDriverInvalidProps,
    hipFileDriverUnsupportedLimit,
    hipFileDriverVersionMismatch,
    hipFileDriverVersionReadError,
    hipFileDriverClosing,
    hipFilePlatformNotSupported,
    hipFileIONotSupported,
    hipFileDeviceNotSupported,
    hipFileDriverError,
    hipFileHipDriverError,
    hipFileHipPointerInvalid,
    hipFileHipMemoryTypeInvalid,
    hipFileHipPointerRangeError,
    hipFileHipContextMismatch,
    hipFileInvalidMappingSize,
    hipFileInvalidMappingRange,
    hipFileInvalidFileType,
    hipFileInvalidFileOpenFlag,
    hipFileDIONotSet,
    hipFileInvalidValue,
    hipFileMemoryAlreadyRegistered,
    hipFileMemoryNotRegistered,
    hipFilePermissionDenied,
    hipFileDriverAlreadyOpen,
    hipFileHandleNotRegistered,
    hipFileHandleAlreadyRegistered,
    hipFileDeviceNotFound,
    hipFileInternalError,
    hipFileGetNewFDFailed,
    hipFileDriverSetupError,
    hipFileIODisabled,
    hipFileBatchSubmitFailed,
    hipFileGPUMemoryPinningFailed,
    hipFileBatchFull,
    hipFileAsyncNotSupported,
    hipFileIOMaxError,
};
enum { COUNT = sizeof CODES / sizeof CODES[0] };

static const char *text(int code)
{
    const char *string = hipFileGetOpErrorString((hipFileOpError_t)code);
    CHECK(string != NULL);
    CHECK(string[0] != '\0');
    return string;
}

int main(void)
{
    /* The numbers themselves: the holes at 21 and 32 are part of them. */
    CHECK_EQ(COUNT, 38);
    CHECK_EQ(CODES[1], 5001);
    CHECK_EQ(hipFileDIONotSet, 5020);
    CHECK_EQ(hipFileInvalidValue, 5022);
    CHECK_EQ(hipFileGetNewFDFailed, 5031);
    CHECK_EQ(hipFileDriverSetupError, 5033);
    CHECK_EQ(hipFileIOMaxError, 5039);

    /* A text of its own for each, different from that of unknown numbers. */
    const char *unknown = text(123456);
    for (int i = 0; i < COUNT; i++) {
        CHECK(strcmp(text(CODES[i]), unknown) != 0);
        for (int j = 0; j < i; j++)
            if (strcmp(text(CODES[i]), text(CODES[j])) == 0)
                FAIL("%d and %d share the text \"%s\"", CODES[i], CODES[j], text(CODES[i]));
    }

    /* Any number is answered: the holes, HIP's codes, the extremes; and a negated result as it stands. */
    const int others[] = { 5000, 5021, 5032, 5040, 1, 2, 100, 719, 999, -1, -2, INT_MAX, INT_MIN, INT_MIN + 1 };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(strcmp(text(others[i]), unknown) == 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(strcmp(text(-CODES[i]), text(CODES[i])) == 0);

    /* Strings are static: the same pointer again, still good. */
    CHECK(text(hipFileInvalidValue) == text(hipFileInvalidValue));

    CHECK_EQ(HIPFILE_BASE_ERR, 5000);
    CHECK(!IS_HIPFILE_ERR(0));
    CHECK(!IS_HIPFILE_ERR(-1));
    CHECK(!IS_HIPFILE_ERR(5000));
    CHECK(IS_HIPFILE_ERR(5001));
    CHECK(IS_HIPFILE_ERR(-5027));
    const ssize_t result = -hipFileHandleNotRegistered;
    CHECK(IS_HIPFILE_ERR(result));
    CHECK(strcmp(HIPFILE_ERRSTR(result), text(5027)) == 0);
    CHECK(strcmp(HIPFILE_ERRSTR(5027), text(5027)) == 0);

    hipFileError_t status;
    memset(&status, 0, sizeof status);
    CHECK(!IS_HIP_DRV_ERR(status));
    status.err = hipFileHipDriverError;
    status.hip_drv_err = (hipError_t)719;
    CHECK(IS_HIP_DRV_ERR(status));
    CHECK_EQ(HIP_DRV_ERR(status), 719);

    /* Text and version touch neither the driver nor errno. */
    errno = ERRNO_SENTINEL;
    text(5001);
    CHECK_OK(hipFileGetVersion(NULL, NULL, NULL));
    CHECK_EQ(hipFileUseCount(), 0);
    CHECK_EQ(errno, ERRNO_SENTINEL);
    puts("OK errors");
    return 0;
}
