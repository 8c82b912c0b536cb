#include "jpeg/codec.h"

#include <cstring>

#include <jerror.h>

namespace fastdata {
namespace {

[[noreturn]] void jump(j_common_ptr info) {
    auto *errors = reinterpret_cast<JpegErrorManager *>(info->err);
    errors->base.format_message(info, errors->text);
    std::longjmp(errors->on_error, 1);
}

bool is_harmless(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM ||
           code == JWRN_NOT_SEQUENTIAL;
}

void weigh_message(j_common_ptr info, int level) {
    if (level >= 0) return;  // traces; warnings have level -1
    auto *errors = reinterpret_cast<JpegErrorManager *>(info->err);
    const int code = errors->base.msg_code;
    if (errors->tolerated == Tolerated::kHarmless && !is_harmless(code)) jump(info);
    ++errors->base.num_warnings;
    errors->strays += code == JWRN_EXTRANEOUS_DATA;
}

void no_output(j_common_ptr) {}  // libjpeg's own prints to stderr

void no_source(j_decompress_ptr) {}

// Called when the data end. Returning FALSE would suspend libjpeg until more come; a marker makes
// it warn and finish.
boolean end_image(j_decompress_ptr info) {
    static constexpr JOCTET kEnd[] = {0xFF, JPEG_EOI};
    info->src->next_input_byte = kEnd;
    info->src->bytes_in_buffer = sizeof kEnd;
    return TRUE;
}

void skip_data(j_decompress_ptr info, long bytes) {
    if (bytes <= 0) return;
    if (static_cast<size_t>(bytes) > info->src->bytes_in_buffer) {
        end_image(info);
        return;
    }
    info->src->next_input_byte += bytes;
    info->src->bytes_in_buffer -= static_cast<size_t>(bytes);
}

void create(jpeg_decompress_struct *info) { jpeg_create_decompress(info); }
void create(jpeg_compress_struct *info) { jpeg_create_compress(info); }
void destroy(jpeg_decompress_struct *info) { jpeg_destroy_decompress(info); }
void destroy(jpeg_compress_struct *info) { jpeg_destroy_compress(info); }

}  // namespace

jpeg_error_mgr *JpegErrorManager::install(Tolerated what) {
    jpeg_std_error(&base);
    base.error_exit = jump;
    base.emit_message = weigh_message;
    base.output_message = no_output;
    tolerated = what;
    strays = 0;
    text[0] = 0;
    return &base;
}

template <typename Info>
JpegCodec<Info>::JpegCodec(Tolerated what) {
    std::memset(&info_, 0, sizeof info_);  // destroy() must be safe even if create() fails at once
    info_.err = errors_.install(what);
    try {
        call([](Info *info) { create(info); });
    } catch (...) {
        destroy(&info_);
        throw;
    }
}

template <typename Info>
JpegCodec<Info>::~JpegCodec() {
    destroy(&info_);
}

template class JpegCodec<jpeg_decompress_struct>;
template class JpegCodec<jpeg_compress_struct>;

void JpegSource::install(jpeg_decompress_struct *info, const uint8_t *data, size_t size) {
    base_.next_input_byte = data;
    base_.bytes_in_buffer = size;
    base_.init_source = no_source;
    base_.fill_input_buffer = end_image;
    base_.skip_input_data = skip_data;
    base_.resync_to_restart = jpeg_resync_to_restart;
    base_.term_source = no_source;
    info->src = &base_;
}

}  // namespace fastdata
