#pragma once

// Memory that is given back to the system while its addresses stay. Thread: any.

#include <cstddef>
#include <span>

namespace tandem {

// Gives the pages back; they are zeros when they are used again. Of private memory, or of a file in
// memory that is mapped there, for all that have mapped it. Pages at the ends that others may have
// bytes on stay as they are. REQUIRES: nobody uses them meanwhile.
void GiveBackPages(std::span<std::byte> memory);

}  // namespace tandem
