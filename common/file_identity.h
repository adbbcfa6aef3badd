#pragma once

// Whether a path still names the file that it named before, with the content that this had: device,
// inode, size and time of the last change as a text. It is cheap, and true unless somebody sets the
// time back. Thread: any; waits for the disk.

#include <string>

namespace tandem {

// Empty: there is no such file.
std::string FileIdentity(const std::string& path);

}  // namespace tandem
