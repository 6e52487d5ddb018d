/*
 * rtc.c - compiles the one program the emulation knows, loads it and looks its kernel up; any other is refused.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"

#include <hip/hiprtc.h>
#include <string.h>

static hiprtcResult compile(const char *source, char **code) {
    hiprtcProgram program = NULL;
    size_t size = 0;
    hiprtcResult result;

    CHECK(hiprtcCreateProgram(&program, source, "program", 0, NULL, NULL) == HIPRTC_SUCCESS);
    result = hiprtcCompileProgram(program, 0, NULL);
    if (result == HIPRTC_SUCCESS) {
        CHECK(hiprtcGetCodeSize(program, &size) == HIPRTC_SUCCESS && size > 0);
        *code = malloc(size);
        CHECK(*code && hiprtcGetCode(program, *code) == HIPRTC_SUCCESS);
    } else {
        CHECK(hiprtcGetProgramLogSize(program, &size) == HIPRTC_SUCCESS && size > 1);
    }
    CHECK(hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS && program == NULL);
    return result;
}

int main(void) {
    char *code = NULL;
    hipModule_t module = NULL;
    hipFunction_t function = NULL;
    int major = 0;
    int minor = 0;

    CHECK(hiprtcVersion(&major, &minor) == HIPRTC_SUCCESS && major > 0);
    CHECK(strcmp(hiprtcGetErrorString(HIPRTC_SUCCESS), "HIPRTC_SUCCESS") == 0);
    CHECK(compile("__global__ void hipfile_copy_late(const unsigned long long *) {}", &code)
          == HIPRTC_SUCCESS);
    OK(hipModuleLoadData(&module, code));
    free(code);
    OK(hipModuleGetFunction(&function, module, "hipfile_copy_late"));
    CHECK(hipModuleGetFunction(&function, module, "another") == hipErrorNotFound);
    OK(hipModuleUnload(module));
    CHECK(compile("__global__ void another(void) {}", &code) == HIPRTC_ERROR_COMPILATION);
    CHECK(hipModuleLoadData(&module, "another compiler's output") == hipErrorNoBinaryForGpu);
    puts("passed");
    return 0;
}
