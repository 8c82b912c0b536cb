// Kernels of jpeg/kernels.h for x86 processors with AVX2.
#pragma once

#include "jpeg/kernels.h"

namespace fastdata {

// Null where the processor has no AVX2.
const JpegKernels *jpeg_kernels_avx2();

}  // namespace fastdata
