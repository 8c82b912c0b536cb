// The one error that what decodes may end in.
#pragma once

#include <cstdio>
#include <stdexcept>

namespace fastdata {

// An image that cannot be decoded. Python sees it as fastdata.errors.DecodeError.
class DecodeError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Throws it with a message that printf would print. Without arguments nothing in it is replaced:
// Clang wants no format there.
template <typename... Args>
[[noreturn]] void fail(const char *format, Args... args) {
    if constexpr (sizeof...(Args) == 0) {
        throw DecodeError(format);
    } else {
        char text[256];
        std::snprintf(text, sizeof text, format, args...);
        throw DecodeError(text);
    }
}

}  // namespace fastdata
