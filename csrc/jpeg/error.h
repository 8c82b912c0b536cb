// The one error in which decoding may end.
#pragma once

#include <cstdio>
#include <stdexcept>

namespace fastdata {

// An image that cannot be decoded. Python sees it as fastdata.errors.DecodeError.
class DecodeError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Throws it, with a message formatted as by printf. A message without arguments is taken literally:
// Clang warns of a format string that is not a constant.
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
