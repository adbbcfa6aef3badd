#pragma once

// CRC-32C (Castagnoli, as iSCSI and ext4 have it): finds bytes that a disk or a network has
// changed. Nobody is kept out by it. Thread: any; pure functions.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

// Of all that `before` is the checksum of, followed by these bytes. 0: of nothing.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
// The same without the instruction that x86 has for it.
uint32_t PortableCrc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace tandem
