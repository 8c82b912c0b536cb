// The Python module fastdata._core. Only this room includes Python's headers. Each binding converts
// its arguments, releases the GIL and calls one function of the other rooms.

#include "bind/register.h"

NB_MODULE(_core, m) {
    // nanobind keeps its types in one interpreter.
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        throw nb::import_error("fastdata._core works in the main interpreter only");
    }
    // Daemon threads that end in the middle of a batch, and forked children, leave objects behind.
    nb::set_leak_warnings(false);
    m.doc() = "The native core of fastdata, which is optional.";
    fastdata::register_errors(m);
    fastdata::register_interpreter(m);
    fastdata::register_jpeg(m);
    fastdata::register_crop(m);
    fastdata::register_sources(m);
    fastdata::register_pool(m);
}
