#pragma once

// The rotation of a pair of numbers by an angle. Thread: pure function. The bits are the same on
// every host: those of a libm's float functions depend on its version, and on the processor that it
// runs on.

namespace tandem {

struct Rotation {
  float cos = 0;
  float sin = 0;
};

// The nearest floats, but for numbers within 2^-26 ulp of the middle of two. REQUIRES
// |angle| < 2^28; NaN gives NaN.
Rotation RotationBy(float angle);

}  // namespace tandem
