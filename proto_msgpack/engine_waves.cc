#include "proto_msgpack/engine_waves.h"

namespace tandem::wire {

std::optional<StartDpWave> EngineWaves::OnReport(const EngineCoreOutputs& report) {
  if (report.wave_complete) {
    if (*report.wave_complete < wave_) return std::nullopt;
    wave_ = *report.wave_complete + 1;
    running_ = false;
    return std::nullopt;
  }
  if (!report.start_wave) return std::nullopt;
  const int64_t wave = *report.start_wave;
  if (wave < wave_ || (wave == wave_ && running_)) return std::nullopt;
  wave_ = wave;
  running_ = true;
  return StartDpWave{.wave = wave, .exclude_engine_index = report.engine_index};
}

}  // namespace tandem::wire
