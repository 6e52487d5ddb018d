/* Stands in for librocprofiler-register.so.0: checks what it is offered, and puts itself between the program and hipFileRead. */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { FUNCTIONS = 34, READ = 5 };

struct table {
    size_t size;
    void *functions[FUNCTIONS];
};

typedef ssize_t read_fn(void *fh, void *buffer, size_t size, off_t file_offset, off_t buffer_offset);
static read_fn *original;

/* What the program asks about. */
int profiler_offers;
int profiler_reads;
const char *profiler_complaint = "nothing was offered";

static ssize_t between(void *fh, void *buffer, size_t size, off_t file_offset, off_t buffer_offset)
{
    __atomic_add_fetch(&profiler_reads, 1, __ATOMIC_RELAXED);
    return original(fh, buffer, size, file_offset, buffer_offset);
}

static const char *complaint(const char *name, uint32_t (*import)(void), uint32_t version, void **tables,
                             uint64_t count)
{
    Dl_info info;
    if (strcmp(name, "hipFile") != 0)
        return "the name";
    if (!dladdr((void *)import, &info) || !info.dli_sname
        || strcmp(info.dli_sname, "rocprofiler_register_import_hipFile") != 0)
        return "the import function's symbol";
    if (version != 500 || import() != version)
        return "the version";
    if (count != 1)
        return "the number of tables";
    struct table *table = tables[0];
    if (table->size != sizeof *table)
        return "the table's size";
    for (int i = 0; i < FUNCTIONS; i++) {
        if (!dladdr(table->functions[i], &info) || !strstr(info.dli_fname, "libhipfile"))
            return "a function";
    }
    return NULL;
}

int rocprofiler_register_library_api_table(const char *name, uint32_t (*import)(void), uint32_t version,
                                           void **tables, uint64_t count, uint64_t *id)
{
    __atomic_add_fetch(&profiler_offers, 1, __ATOMIC_RELAXED);
    errno = ENOTTY;
    profiler_complaint = complaint(name, import, version, tables, count);
    if (profiler_complaint)
        return 1;
    if (getenv("PROFILER_FAILS"))
        return 3;
    struct table *table = tables[0];
    original = (read_fn *)table->functions[READ];
    table->functions[READ] = (void *)between;
    *id = 42;
    return 0;
}
