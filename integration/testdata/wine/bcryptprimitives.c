/* The one function of bcryptprimitives.dll that Go programs need, for a wine without that library (before 8.8). */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID data, ULONG size); /* RtlGenRandom */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return SystemFunction036(data, (ULONG)size); }
