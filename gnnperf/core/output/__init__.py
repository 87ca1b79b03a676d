"""What leaves the program: texts of strangers lose what a terminal, a spreadsheet or a browser would act on."""
