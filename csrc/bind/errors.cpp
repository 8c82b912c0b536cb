#include <exception>

#include "bind/register.h"
#include "files/byte_source.h"
#include "jpeg/error.h"
#include "pool/worker_pool.h"

namespace fastdata {
namespace {

template <typename Error>
void translate(const std::exception_ptr &error, void *python_type) {
    try {
        std::rethrow_exception(error);
    } catch (const Error &found) {
        // Messages may hold paths, which need not be UTF-8.
        PyObject *message = PyUnicode_DecodeFSDefault(found.what());
        if (message == nullptr) return;  // with the reason as the exception
        PyErr_SetObject(static_cast<PyObject *>(python_type), message);
        Py_DECREF(message);
    }
}

}  // namespace

void register_errors(nb::module_ &m) {
    nb::module_ errors = nb::module_::import_("fastdata.errors");
    nb::object decode_error = errors.attr("DecodeError");
    nb::object thread_error = errors.attr("ThreadError");
    // As attributes, the classes live for as long as a translator may need them.
    m.attr("DecodeError") = decode_error;
    m.attr("ThreadError") = thread_error;
    nb::register_exception_translator(translate<DecodeError>, decode_error.ptr());
    nb::register_exception_translator(translate<NoThreadError>, thread_error.ptr());
    nb::register_exception_translator(translate<ReadError>, PyExc_OSError);
}

}  // namespace fastdata
