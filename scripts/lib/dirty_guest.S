# A guest of one boot sector that notices lost and stale memory: it counts in every page from 1 MB to END, again and again.
# To the first serial port it writes '.' after a pass in which every page held what the last one left, or X, for ever.
.code16
.globl _start
_start:
  cli
  xorw %ax, %ax
  movw %ax, %ds
  lgdtl gdt_pointer
  movl %cr0, %eax
  orl $1, %eax
  movl %eax, %cr0
  ljmpl $8, $protected
.code32
protected:
  movw $16, %ax
  movw %ax, %ds
  xorl %ecx, %ecx  # passes
  movl $0x100000, %ebx
clear:
  movl $0, (%ebx)
  addl $4096, %ebx
  cmpl $END, %ebx
  jb clear
pass:
  movl $0x100000, %ebx
page:
  cmpl %ecx, (%ebx)
  jne wrong
  incl (%ebx)
  addl $4096, %ebx
  cmpl $END, %ebx
  jb page
  incl %ecx
  movb $'.', %al
say:
  movw $0x3f8, %dx
  outb %al, %dx
  movl $20000000, %esi
rest:  # so that a migration comes to an end
  decl %esi
  jnz rest
  cmpb $'X', %al
  jne pass
  jmp say
wrong:
  movb $'X', %al
  jmp say
.align 8
gdt:
  .quad 0
  .quad 0x00cf9a000000ffff
  .quad 0x00cf92000000ffff
gdt_pointer:
  .word gdt_pointer - gdt - 1
  .long gdt
.org 510
  .word 0xaa55
