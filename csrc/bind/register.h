// The bindings by topic, one .cpp each, in the order in which the module registers them.
#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace fastdata {

void register_errors(nb::module_ &m);       // C++ errors as Python's exceptions
void register_interpreter(nb::module_ &m);  // what to do before the interpreter ends
void register_jpeg(nb::module_ &m);         // headers, and re-encoding
void register_crop(nb::module_ &m);         // one image, in the calling thread
void register_sources(nb::module_ &m);      // where encoded bytes come from: files, LMDB
void register_pool(nb::module_ &m);         // batches, in threads of our own

}  // namespace fastdata
