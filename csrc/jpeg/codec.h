// Owners for libjpeg-turbo's two structs, and its errors as DecodeError.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including anything
#include <type_traits>

#include <jpeglib.h>

#include "jpeg/error.h"

namespace fastdata {

// An error of libjpeg's, with its own code beside its sentence.
class JpegError : public DecodeError {
  public:
    JpegError(const char *text, int code) : DecodeError(text), code_(code) {}
    int code() const { return code_; }

  private:
    int code_;
};

// Which of libjpeg's warnings do not end a call.
enum class Tolerated {
    kHarmless,  // those that change no coefficient: about stray bytes, unknown JFIF or Adobe kinds
    kDamage,    // all, so that there are pixels wherever libjpeg makes some
};

struct JpegErrorManager {
    jpeg_error_mgr base;  // first: libjpeg hands back its address
    std::jmp_buf on_error;
    Tolerated tolerated;
    int strays;  // warnings about bytes that belong to nothing
    char text[JMSG_LENGTH_MAX];

    // Errors and warnings jump to on_error, except for tolerated warnings, which are counted.
    jpeg_error_mgr *install(Tolerated what);
};

// Owns a jpeg_decompress_struct or a jpeg_compress_struct. After a JpegError the struct may only
// be destroyed: libjpeg's state survives its errors (a handle that met one bad header failed on
// later good images).
template <typename Info>
class JpegCodec {
  public:
    explicit JpegCodec(Tolerated what = Tolerated::kHarmless);
    ~JpegCodec();
    JpegCodec(const JpegCodec &) = delete;
    JpegCodec &operator=(const JpegCodec &) = delete;

    Info *operator->() { return &info_; }
    Info *get() { return &info_; }
    int warnings() const { return static_cast<int>(errors_.base.num_warnings); }
    int strays() const { return errors_.strays; }

    // Runs body(Info *), which may call libjpeg. An error jumps over body's frame, so nothing in it
    // may have a destructor.
    template <typename Body>
    void call(const Body &body) {
        static_assert(std::is_trivially_destructible_v<Body>);
        if (!finishes(body)) throw JpegError(errors_.text, errors_.base.msg_code);
    }

  private:
    template <typename Body>
    bool finishes(const Body &body) {
        if (setjmp(errors_.on_error)) return false;
        body(&info_);
        return true;
    }

    JpegErrorManager errors_;
    Info info_;
};

using JpegDecompressor = JpegCodec<jpeg_decompress_struct>;
using JpegCompressor = JpegCodec<jpeg_compress_struct>;

// Reads from memory, which must outlive the decoding. The bytes are followed by an end-of-image
// marker: if a decoder meets it too early it warns of damage, but not in progressive and arithmetic
// images. Only read_jpeg_header can tell that these were cut.
class JpegSource {
  public:
    void install(jpeg_decompress_struct *info, const uint8_t *data, size_t size);

  private:
    jpeg_source_mgr base_;
};

}  // namespace fastdata
