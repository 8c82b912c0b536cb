// CMake compiles this file by itself to see whether a static libjpeg-turbo can be linked, so it
// needs nothing but the library.

#include "jpeg/library.h"

#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including anything
#include <stdexcept>

#include <jpeglib.h>

#ifndef LIBJPEG_TURBO_VERSION_NUMBER
#error "jpeglib.h is not libjpeg-turbo's"
#endif
static_assert(LIBJPEG_TURBO_VERSION_NUMBER >= 2001000, "libjpeg-turbo 2.1 or newer is needed");

namespace fastdata {
namespace {

struct ErrorManager {
    jpeg_error_mgr base;
    std::jmp_buf on_error;
};

void jump(j_common_ptr info) {
    std::longjmp(reinterpret_cast<ErrorManager *>(info->err)->on_error, 1);
}

// jpeg_create_decompress compares the ABI version and the size of its struct with the library's. No
// object here may have a destructor, because longjmp would not run it.
bool library_fits_header() {
    ErrorManager errors;
    jpeg_decompress_struct info;
    info.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = jump;
    if (setjmp(errors.on_error)) return false;
    jpeg_create_decompress(&info);
    jpeg_destroy_decompress(&info);
    return true;
}

}  // namespace

std::string libjpeg_turbo_version() {
    if (!library_fits_header()) {
        throw std::runtime_error("the loaded libjpeg is not the one that fastdata was built with");
    }
    constexpr int number = LIBJPEG_TURBO_VERSION_NUMBER;  // 2001005 is 2.1.5
    return std::to_string(number / 1000000) + "." + std::to_string(number / 1000 % 1000) + "." +
           std::to_string(number % 1000);
}

}  // namespace fastdata
